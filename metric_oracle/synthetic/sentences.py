"""Sentence templates of the synthetic chest X-ray impressions, in the notation of `synthetic_grammar.py`.

Everything here was written for this project; no sentence is taken from a data set.
"""

# Whole impressions, commonest first; " . " divides sentences.
COMMON_IMPRESSIONS = """
no acute:n cardiopulmonary:A process:N ;
no acute:n cardiopulmonary:A abnormality:N ;
no acute:n intrathoracic:A process:N ;
no evidence of acute:n cardiopulmonary:A disease:N ;
no acute:n intrathoracic:A abnormality:N ;
no evidence of pneumonia:N #PN! ;
no radiographic evidence of pneumonia:N #PN! ;
no acute:n cardiac:A | or pulmonary:A process:N ;
as above ;
no pneumothorax:N #PT! ;
no acute:n findings:N ;
no pneumonia:N #PN! ;
no focal:n consolidation:N #CO! ;
normal:O chest:A radiograph ;
no significant interval change:N ;
no change:N ;
no evidence of intrathoracic:A metastatic:n disease:N ;
no relevant:n change:N ;
mild:o cardiomegaly:O #CM . no acute:n cardiopulmonary:A process:N ;
no acute:n cardiopulmonary:A pathology:N ;
clear:O lungs:A ;
low:o lung:A volumes:O | with bibasilar:A atelectasis:O #AT ;
mild:o pulmonary:A edema:O #ED ;
bibasilar:A atelectasis:O #AT ;
no displaced:n rib:A fracture:N #FX! ;
no acute:n cardiopulmonary:A process:N . no pneumothorax:N #PT! ;
___ ;
small:o bilateral:a pleural:A effusions:O #PE ;
right:a lower:a lobe:A pneumonia:O #PN ;
left:a lower:a lobe:A pneumonia:O #PN ;
no evidence of acute:n pulmonary:A disease:N ;
standard:o positioning:o of the monitoring | and support:o devices:O #SD ;
no previous images . normal:O heart:A | and lungs:A ;
stable:o chest:A findings:O ;
see findings ;
no acute:n process:N ;
no evidence of active:n or latent:n tuberculosis:N ;
hyperinflated:O lungs:A | without acute:n process:N ;
no pleural:A effusion:N #PE! | or pneumothorax:N #PT! ;
no evidence of free:n air:N below the diaphragm:A ;
cardiomegaly:O #CM | without pulmonary:A edema:N #ED! ;
left:a basilar:A atelectasis:O #AT . no pneumonia:N #PN! ;
unchanged:o moderate:o cardiomegaly:O #CM ;
PICC:O in adequate:o position:o #SD ;
no interval change:N since ___ ;
preliminary reading agrees with the above ;
no acute:n osseous:A abnormality:N ;
limited study . no acute:n process:N
"""

# What a report's sentences are drawn from, and what only those use.
SENTENCES = {
    "normal": """
        no acute:n cardiopulmonary:A {process!} ; no acute:n intrathoracic:A {process!} ;
        no evidence of acute:n cardiopulmonary:A {process!} ; no acute:n {process!} ; lungs:A are otherwise clear:O ;
        no radiographic evidence of acute:n cardiopulmonary:A {process!} ;
        no definite acute:n cardiopulmonary:A {process!} ; otherwise unremarkable:O chest:A radiograph ;
        no acute:n pulmonary:A {process!} ; no acute:n pleural:A | or parenchymal:A {process!} ;
        unremarkable:O cardiac:a silhouette:A #CM! ; heart:a size:A is normal:O #CM! ;
        cardiomediastinal:a silhouette:A is within normal:O limits #EC! ;
        no acute:n or active:n {process!} in the chest:A ; no acute:n cardiac:A {process!}
    """,
    "process": """
        process:O ; abnormality:O ; disease:O ; findings:O ; pathology:O ; abnormalities:O ; changes:O
    """,
    "finding": """
        {effusion} {tail} ; {atelectasis} {tail} ; {edema} {tail} ; {opacity} {tail} ; {heart} {tail} ; {other} ;
        {consolidation} {tail} ; {opacity} {surely} => {cause} ; {effusion} | with {adjacent} {atelectasis} ;
        {pneumonia} {tail} ; {other} {tail} ; there is {effusion} {tail} ; {change} {effusion} ; {change} {edema} ;
        {lesion} {tail} ; {ptx} {tail} ; {heart} | with {edema} ; {change} {opacity} ; there is {opacity} {tail} ;
        {fracture} {tail} ; {pleura} {tail} ; {heart} | , {edema} | , and {effusion} ; {trend} {other} ;
        {mediastinum} {tail} ; {change} {ptx} ; {change} {consolidation} ; again seen is {lesion} {tail} ;
        {consolidation} {surely} => {germ} pneumonia:O #PN ; {change} {atelectasis} {against} ;
        in the appropriate clinical setting , {opacity} {surely} => {cause} ; {lesion} {surely} => {lesionword}
    """,
    "adjacent": """
        adjacent:o ; associated:o ; overlying:o ; compressive:o ; accompanying:o ; concomitant:o ; underlying:o
    """,
    "uncertain": """
        {opacity} {maybe} => {cause?} ; possible {doubt?} ; {doubt?} cannot be excluded ; probable {doubt?} ;
        {consolidation} {maybe} => {cause?} ; {opacity} {maybe} => {cause?} ; difficult to exclude {doubt?} ;
        {doubt?} is not excluded ; {atelectasis} | , although {doubt?} cannot be excluded ;
        {lesion} {maybe} => {lesionword?} ; question of {doubt?} ; {effusion?} is possible ;
        in the correct clinical context , {doubt?} is possible ; cannot rule out {doubt?} ; {fracture?} is suspected ;
        {opacity} | could be either {cause?} ; equivocal for {doubt?} ; suspected {edema?} ;
        {mediastinum?} is questioned ; {heart?} cannot be assessed ; raises concern for {doubt?} ; {pleura?} is favored
    """,
    "negative": """
        no {no_one!} ; no {no_more!} ; no evidence of {no_one!} ; there is no {no_one!} ; no evidence of {no_more!} ;
        there is no {no_more!} ; no definite {no_one!} ; no new:n {no_one!} ; no radiographic evidence for {no_one!} ;
        no convincing evidence of {no_one!} ; {no_one!} has resolved:o ; no sizable {no_one!} ;
        without evidence of {no_one!} ; negative for {no_one!} ; no findings to suggest {no_one!} ;
        {no_one!} is absent ; no convincing {rare!} ; no free:n air:N below the {side} hemidiaphragm:A ;
        no radiopaque:n foreign:n body:N ; no large {no_more!}
    """,
    "compare": """
        no significant interval change:N ; no relevant:n change:N {against} ; little:o change:O {against} ;
        overall unchanged:O {against} ; as compared to the previous radiograph , there is no relevant:n change:N ;
        unchanged:O examination {against} ; comparison is made to ___ ; improved:o aeration:O of the {lung} ;
        lung:A volumes:O are lower:o {against} ; slightly:o improved:o aeration:O at the {base} ;
        interval:o extubation:O ; interval:o removal:O of the {drain} #SD ; no change:N since {num} days ago ;
        findings:O are {trend} {against} ; in comparison with the study of ___ , there is little:o overall change:O ;
        ___ ; decreased:o aeration:O of the {lung} {against}
    """,
    "airway": """
        {tube} #SD {dist} above the carina:A ; {tube} #SD terminates:o {dist} above the carina:A ;
        {tube} #SD in standard:o position:o ; tip:o of the {tube} #SD is {dist} from the carina:A ;
        {tube} #SD is low:o lying , {dist} above the carina:A and could be withdrawn by {num} cm ;
        {tube} #SD extends:o into the {side} mainstem:a bronchus:A
    """,
    "gastric": """
        {feeding} #SD with tip:o in the {feedtip} ; {feeding} #SD terminates:o in the {feedtip} ;
        {feeding} #SD courses:o below the diaphragm:A and out of view ;
        {feeding} #SD side:o port:o is at the {feedtip} and should be advanced by {num} cm ;
        {feeding} #SD is coiled:o in the {feedtip} ; {change} position of the {feeding} #SD
    """,
    "venous": """
        {line} #SD with tip:o in the {linetip} ; {line} #SD terminates:o in the {linetip} ;
        tip:o of the {line} #SD projects:o over the {linetip} ; {line} #SD in unchanged:o position:o ;
        {line} #SD ends:o in the {linetip} , {dist} below the carina:A ;
        interval:o placement:o of {line} #SD with tip:o in the {linetip} ; interval:o removal:o of {line} #SD ;
        {line} #SD is malpositioned:o and courses:o into the {linetip}
    """,
    "drained": """
        {drain} #SD in place:o ; {drain} #SD in unchanged:o position:o ;
        interval:o placement:o of {drain} #SD | with {change} {effusion} ; {drain} #SD in place:o | without {no_one!} ;
        interval:o removal:o of {drain} #SD | , no {no_one!} ; {drain} #SD has been pulled:o back by {dist} ;
        {drain} #SD is kinked:o at the {base}
    """,
    "implanted": """
        {pacer} #SD in standard:o position:o ;
        {pacer} #SD with leads:o in the right:a atrium:A | and right:a ventricle:A ; {pacer} #SD is unchanged:o ;
        {pacer} #SD leads:o are intact:o ; {pacer} #SD with lead:o tip:o in the right:a ventricle:A ;
        monitoring | and support:o devices:O #SD are unchanged:o ; {implant} #SD is unchanged:o ;
        {implant} #SD in standard:o position:o ; {implant} #SD projects:o over the {lung} ;
        fractured:o lead:o of the {pacer} #SD ; interval:o placement:o of {implant} #SD
    """,
    "advice": """
        recommend {study} ; {study} is recommended for further evaluation ;
        follow-up radiographs in {num} weeks are recommended to document resolution ;
        consider {study} if clinically indicated ; clinical correlation is recommended ;
        recommend follow-up {study} in {num} months ; {study} may be obtained for {purpose} ;
        repeat radiograph after treatment is recommended ; recommend {purpose} with {study} ;
        correlation with {purpose} is suggested ; suggest {study} in {weeks} weeks
    """,
    "weeks": "4 to 6 ; 6 to 8 ; 3 to 4 ; 8 to 12 ; 2 to 3 ; 10 to 12",
    "study": """
        chest CT ; dedicated PA and lateral views ; CT ; PA/lateral radiographs ; nonemergent chest CT ;
        dedicated rib series ; echocardiography ; ultrasound ; contrast-enhanced CT ; lordotic views ;
        shallow oblique radiographs ; PET/CT ; MRI ; bronchoscopy ; CT angiography ; decubitus views ; esophagram ;
        high-resolution CT ; spirometry ; fluoroscopy ; mammography ; scintigraphy ; thoracentesis
    """,
    "purpose": """
        further characterization ; better assessment ; confirmation ; physical examination ; prior outside imaging ;
        exclusion of an underlying lesion ; localization ; operative history ; laboratory values ; symptoms ; staging ;
        bedside inspection ; auscultation ; sputum culture ; pulmonary function testing ; oncologic history
    """,
    "notice": """
        findings were discussed with Dr. ___ by telephone at {time} on ___ ; Dr. ___ was paged at {time} on ___ ;
        these findings were communicated to Dr. ___ at {time} , {num} minutes after discovery ;
        results were discussed with ___ , RN , at {time} ; the wet read was provided to ___ at {time} on ___ ;
        Dr. ___ was informed by ___ via {channel} at {time} ; the {team} was notified at {time} by {channel}
    """,
    "channel": "telephone ; page ; secure e-mail ; the dashboard ; text message ; voicemail ; intercom",
    "team": """
        primary team ; referring physician ; emergency department ; surgical resident ; ICU team ; nurse practitioner ;
        cardiology fellow ; trauma surgeon ; anesthesiologist ; hospitalist ; pulmonologist ; oncology clinic ;
        housestaff
    """,
}
