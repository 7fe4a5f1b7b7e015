"""Word tables of the synthetic chest X-ray impressions, and the notation of all tables.

Everything here was written for this project; no sentence is taken from a data set.

A table is a list of alternatives, commonest first, divided by semicolons; ``-`` stands for "nothing". An alternative
is a row of words divided by blanks, where

``{table}``
    is one alternative of another table; ``{table?}`` says that its findings are uncertain, ``{table!}`` that they are
    absent;
``word:O`` ``word:o``
    is an observation and a modifier of one, definitely present; ``U u`` uncertain, ``N n`` definitely absent;
``word:A`` ``word:a``
    is an anatomy and a modifier of one; a ``+`` inside a word is a blank inside one entity;
``|``
    ends the group of words in which observations, modifiers and anatomies find each other;
``=>``
    ends it too, and makes the observation before it suggestive of the one after it;
``#PE`` ``#PE?`` ``#PE!``
    sets a CheXbert label; without a mark it follows the certainty of its table.
"""

from metric_oracle.synthetic.sentences import SENTENCES

# In the order of metric_oracle.corpora.vectors.LABELS.
LABEL_CODES = ("EC", "CM", "LO", "LL", "ED", "CO", "PN", "AT", "PT", "PE", "PO", "FX", "SD", "NF")

TABLES = {
    # ---- places ------------------------------------------------------------------------------------------------------
    "side": "left:a ; right:a",
    "sides": """
        bilateral:a ; left:a ; right:a ; left-sided:a ; right-sided:a ; left:a greater:o than right:a ;
        right:a greater:o than left:a
    """,
    "level": """
        upper:a ; mid:a ; lower:a ; inferior:a ; superior:a ; medial:a ; lateral:a ; peripheral:a ; central:a ;
        anterior:a ; posterior:a ; paramediastinal:a ; subpleural:a ; juxtahilar:a ; dependent:a ; nondependent:a
    """,
    "segment": """
        apicoposterior:a ; superior:a ; lingular:a ; posterobasal:a ; laterobasal:a ; anterobasal:a ; mediobasal:a ;
        apical:a
    """,
    "base": """
        left:a base:A ; right:a base:A ; lung:a bases:A ; left:a lung:a base:A ; right:a lung:a base:A ;
        both lung:a bases:A ; left:a costophrenic:a angle:A ; right:a cardiophrenic:a angle:A
    """,
    "lung": """
        {base} ; right:a lower:a lobe:A ; left:a lower:a lobe:A ; right:a upper:a lobe:A ; left:a upper:a lobe:A ;
        right:a middle:a lobe:A ; lingula:A ; {side} lung:A ; {level} {side} lung:A ; {side} {level} lung:a zone:A ;
        right:a apex:A ; left:a apex:A ; {side} perihilar:a region:A ; retrocardiac:a area:A ;
        {side} infrahilar:a region:A ; {side} suprahilar:a region:A ;
        {segment} segment:A of the {side} {level} lobe:a ; both lungs:A ; {side} hemithorax:A ;
        right:a minor:a fissure:A ; {side} major:a fissure:A ; azygos:a lobe:A ; {side} juxtadiaphragmatic:a lung:A ;
        {side} axillary:a subsegment:A
    """,
    "bib": """
        bibasilar:A ; basilar:A ; basal:A ; left:a basilar:A ; right:a basilar:A ; left:a basal:A ; right:a basal:A ;
        retrocardiac:A ; perihilar:A ; left:a retrocardiac:A ; right:a infrahilar:A ; lingular:A ; biapical:A ;
        left:a lower:a lobe:A ; right:a lower:a lobe:A ; right:a middle:a lobe:A ; right:a upper:a lobe:A ;
        left:a upper:a lobe:A ; left:a midlung:A ; right:a midlung:A ; peribronchial:A ; supradiaphragmatic:A
    """,
    "ord": """
        fifth:a ; sixth:a ; seventh:a ; fourth:a ; eighth:a ; third:a ; ninth:a ; second:a ; tenth:a ; first:a ;
        eleventh:a ; twelfth:a ; 5th:a ; 6th:a ; 7th:a ; 8th:a ; 9th:a ; 4th:a ; 3rd:a ; 2nd:a ; 10th:a ; 11th:a ;
        12th:a
    """,
    "vert": """
        T12:A ; L1:A ; T8:A ; T11:A ; T7:A ; T10:A ; T9:A ; T6:A ; T5:A ; L2:A ; T4:A ; T3:A ; L3:A ; T2:A ; T1:A ;
        C7:A ; C6:A ; L4:A ; C5:A ; T6-T7:A ; T7-T8:A ; T8-T9:A ; T11-T12:A ; T12-L1:A
    """,
    "bone": """
        {side} {ord} rib:A ; {side} {place} {ord} rib:A ; {side} clavicle:A ; {vert} vertebral:a body:A ;
        {side} proximal:a humerus:A ; {side} humeral:a head:A ; {side} scapula:A ; sternum:A ; manubrium:A ;
        {side} {ord} through {ord} ribs:A ; {side} distal:a clavicle:A ; {side} glenoid:A ; {side} acromion:A ;
        {side} coracoid:a process:A ; thoracic:a spine:A ; xiphoid:A
    """,
    "place": "lateral:a ; posterior:a ; anterolateral:a ; posterolateral:a ; anterior:a",
    # ---- modifiers ---------------------------------------------------------------------------------------------------
    "size": """
        small:o ; moderate:o ; large:o ; tiny:o ; trace:o ; minimal:o ; small-to-moderate:o ; moderate-to-large:o ;
        massive:o ; sizable:o ; very small:o
    """,
    "grade": """
        mild:o ; moderate:o ; minimal:o ; severe:o ; mild-to-moderate:o ; moderate-to-severe:o ; slight:o ; marked:o ;
        borderline:o ; subtle:o ; extensive:o ; substantial:o ; trace:o ; diffuse:o ; gross:o ; florid:o
    """,
    "trend": """
        unchanged:o ; stable:o ; improved:o ; increased:o ; decreased:o ; persistent:o ; new:o ; worsening:o ;
        increasing:o ; improving:o ; resolving:o ; residual:o ; known:o ; chronic:o ; decreasing:o ; enlarging:o ;
        evolving:o ; waxing:o ; recurrent:o ; longstanding:o ; progressive:o ; re-demonstrated:o
    """,
    "change": """
        interval:o increase:o in ; interval:o decrease:o in ; interval:o improvement:o in ; interval:o worsening:o of ;
        slight:o interval:o increase:o in ; interval:o development:o of ; interval:o progression:o of ;
        no significant:n change:n in ; interval:o enlargement:o of ; slow:o regression:o of ; partial:o clearing:o of ;
        continued:o presence of ; mild:o interval:o redistribution:o of
    """,
    "against": """
        from prior ; from ___ ; since ___ ; compared to ___ ; as compared to the previous radiograph ;
        since the prior study ; compared with the prior examination from ___ ; from the study of earlier the same day ;
        relative to ___ ; when compared to prior CT from ___ ; over the last {num} hours ; over the past {num} days ;
        since the {num} a.m. film
    """,
    "tail": """
        - ; , unchanged:o ; , unchanged:o {against} ; , stable:o {against} ; , improved:o {against} ;
        , worse:o {against} ; , new:o {against} ; , increased:o {against} ; , decreased:o {against} ;
        , similar:o to prior ; , not significantly:n changed:n {against} ; , best seen on the lateral view ;
        , more conspicuous:o {against} ; , less extensive:o {against} ; , likely chronic:o ;
        , minimally:o progressed:o {against} ; , accentuated by patient rotation ;
        , partially obscured by overlying leads ; , without appreciable:n change:n {against}
    """,
    "shape": """
        patchy:o ; focal:o ; hazy:o ; linear:o ; streaky:o ; ill-defined:o ; nodular:o ; confluent:o ; multifocal:o ;
        diffuse:o ; rounded:o ; wedge-shaped:o ; reticular:o ; reticulonodular:o ; ground-glass:o ; heterogeneous:o ;
        vague:o ; band-like:o ; asymmetric:o ; plate-like:o ; peripheral:o ; interstitial:o ; tree-in-bud:o ;
        fluffy:o ; coalescent:o ; dense:o ; geographic:o ; perilymphatic:o ; miliary:o ; mass-like:o ; branching:o ;
        crescentic:o ; triangular:o ; veil-like:o ; spiculated:o ; lobulated:o ; curvilinear:o ; bandlike:o
    """,
    # ---- findings ----------------------------------------------------------------------------------------------------
    "effusion": """
        {size} {sides} pleural:A effusion:O #PE ; {size} bilateral:a pleural:A effusions:O #PE ;
        {sides} pleural:A effusion:O #PE ; {trend} {size} {sides} pleural:A effusion:O #PE ;
        pleural:A effusions:O #PE ; {size} {loculated} {sides} pleural:A effusion:O #PE ;
        blunting:O of the {side} costophrenic:a angle:A #PE ; {side} hydropneumothorax:O #PE #PT ;
        subpulmonic:o {side} pleural:A effusion:O #PE ; {side} hemothorax:O #PE ;
        layering:o {side} pleural:A fluid:O #PE ; fissural:a fluid:O #PE in the {side} lung:A ;
        {side} chylothorax:O #PE
    """,
    "loculated": """
        loculated:o ; partially:o loculated:o ; layering:o ; subpulmonic:o ; free-flowing:o ; multiloculated:o ;
        hemorrhagic:o ; malignant:o ; parapneumonic:o ; septated:o
    """,
    "edema": """
        {grade} pulmonary:A edema:O #ED ; {grade} pulmonary:a vascular:A congestion:O #ED ;
        {grade} interstitial:o edema:O #ED ; {trend} pulmonary:A edema:O #ED ;
        {grade} interstitial:o pulmonary:A edema:O #ED ; {grade} central:o vascular:A engorgement:O #ED ;
        {grade} alveolar:o edema:O #ED ; {grade} fluid:O overload:O #ED ; congestive:o heart:A failure:O #ED ;
        asymmetric:o {side} pulmonary:A edema:O #ED ; cephalization:O of the pulmonary:a vessels:A #ED ;
        {grade} volume:o overload:O #ED ; re-expansion:o edema:O #ED of the {side} lung:A ;
        indistinct:O hilar:a vasculature:A #ED ; {grade} noncardiogenic:o edema:O #ED
    """,
    "atelectasis": """
        {bib} atelectasis:O #AT ; {grade} {bib} atelectasis:O #AT ; atelectasis:O #AT at the {base} ;
        {shape} {bib} atelectasis:O #AT ; subsegmental:o atelectasis:O #AT in the {lung} ;
        compressive:o atelectasis:O #AT at the {base} ; {trend} {bib} atelectasis:O #AT ;
        volume:O loss:O #AT in the {lung} ; collapse:O #AT of the {lung} ; discoid:o atelectasis:O #AT in the {lung} ;
        partial:o collapse:O #AT of the {lung} ; rounded:o atelectasis:O #AT in the {lung} ;
        plate-like:o {bib} atelectasis:O #AT ; passive:o relaxation:o atelectasis:O #AT of the {lung}
    """,
    "opacity": """
        {shape} opacity:O #LO in the {lung} ; {bib} opacity:O #LO ; {shape} {bib} opacities:O #LO ;
        {trend} {shape} opacity:O #LO in the {lung} ; {grade} {shape} opacities:O #LO in the {lung} ;
        {bib} opacification:O #LO ; {shape} airspace:o disease:O #LO in the {lung} ;
        {shape} infiltrate:O #LO in the {lung} ; increased:o interstitial:o markings:O #LO in the {lung} ;
        {shape} parenchymal:a opacities:O #LO ; {shape} density:O #LO projecting over the {lung} ;
        complete:o opacification:O #LO of the {side} hemithorax:A ; {shape} and {shape} opacities:O #LO in the {lung}
    """,
    "consolidation": """
        {bib} consolidation:O #CO ; consolidation:O #CO in the {lung} ; {shape} consolidation:O #CO in the {lung} ;
        {trend} {bib} consolidation:O #CO ; {grade} consolidation:O #CO in the {lung} ;
        {shape} {bib} consolidations:O #CO ;
        {trend} {shape} consolidation:O #CO with air:o bronchograms:o in the {lung}
    """,
    "pneumonia": """
        {bib} pneumonia:O #PN ; pneumonia:O #PN in the {lung} ; {trend} {bib} pneumonia:O #PN ;
        multifocal:o pneumonia:O #PN ; early:o {bib} pneumonia:O #PN ; {bib} aspiration:o pneumonia:O #PN ;
        atypical:o pneumonia:O #PN in the {lung} ; {germ} pneumonia:O #PN in the {lung} ;
        bronchopneumonia:O #PN of the {lung}
    """,
    "germ": """
        bacterial:o ; viral:o ; fungal:o ; pneumocystis:o ; mycoplasma:o ; legionella:o ; staphylococcal:o ;
        pneumococcal:o ; klebsiella:o ; pseudomonas:o ; nocardia:o ; aspergillus:o ; influenza:o ; cryptococcal:o ;
        cytomegalovirus:o ; varicella:o ; necrotizing:o ; postobstructive:o ; lipoid:o ; organizing:o ; eosinophilic:o
    """,
    "heart": """
        {grade} cardiomegaly:O #CM ; {trend} {grade} cardiomegaly:O #CM ; cardiomegaly:O #CM ;
        {grade} enlargement:O of the cardiac:a silhouette:A #CM ; {grade} cardiac:A enlargement:O #CM ;
        {trend} cardiomegaly:O #CM ; enlarged:O heart:A #CM ; left:a ventricular:A enlargement:O #CM ;
        left:a atrial:A enlargement:O #CM ; biventricular:A dilatation:O #CM ; right:a ventricular:A prominence:O #CM ;
        globular:o cardiac:A enlargement:O #CM
    """,
    "mediastinum": """
        {grade} widening:O of the mediastinum:A #EC ; {trend} mediastinal:A widening:O #EC ;
        prominent:O mediastinum:A #EC ; mediastinal:A lymphadenopathy:O #EC ;
        {grade} enlarged:o cardiomediastinal:a silhouette:A #EC ; superior:a mediastinal:A fullness:O #EC ;
        {side} paratracheal:a thickening:O #EC ; {cm} mediastinal:A mass:O #EC ; anterior:a mediastinal:A thymoma:O #EC
    """,
    "lesion": """
        {mm} nodule:O #LL in the {lung} ; {shape} nodule:O #LL in the {lung} ; {cm} mass:O #LL in the {lung} ;
        {trend} {mm} pulmonary:A nodule:O #LL ; multiple:o pulmonary:A nodules:O #LL ;
        {cm} x {cm} {shape} mass:O #LL in the {lung} ; calcified:o granuloma:O #LL in the {lung} ;
        cavitary:o lesion:O #LL in the {lung} measuring {cm} ; innumerable:o pulmonary:A metastases:O #LL ;
        {shape} {bib} nodules:O #LL up to {mm} ; {size} {texture} nodule:O #LL in the {lung} ;
        {cm} hilar:A mass:O #LL on the {side} ; {cm} {texture} {lesionword} #LL in the {lung}
    """,
    "texture": """
        calcified:o ; noncalcified:o ; cavitating:o ; solid:o ; subsolid:o ; part-solid:o ; spiculated:o ;
        lobulated:o ; well-circumscribed:o ; necrotic:o ; thick-walled:o ; thin-walled:o ; popcorn:o ; irregular:o
    """,
    "lesionword": """
        mass:O ; neoplasm:O ; tumor:O ; carcinoma:O ; adenocarcinoma:O ; hamartoma:O ; carcinoid:O ; metastasis:O ;
        aspergilloma:O ; lymphoma:O ; mycetoma:O ; sarcoma:O ; plasmacytoma:O ; echinococcal:o cyst:O ; bronchocele:O ;
        pneumatocele:O ; lymphangioma:O ; teratoma:O ; schwannoma:O ; neurofibroma:O
    """,
    "ptx": """
        {size} {side} apical:A pneumothorax:O #PT ; {size} {side} pneumothorax:O #PT ;
        {trend} {size} {side} pneumothorax:O #PT ; {side} pneumothorax:O #PT ;
        {mm} {side} apical:A pneumothorax:O #PT ; {size} {sides} pneumothorax:O #PT ;
        {side} tension:o pneumothorax:O #PT ; {side} basilar:A pneumothorax:O #PT measuring {mm} ;
        {size} {side} anterior:a pneumothorax:O #PT with deep:o sulcus:o sign ; {side} loculated:o pneumothorax:O #PT
    """,
    "pleura": """
        {side} pleural:A thickening:O #PO ; biapical:a pleural:A thickening:O #PO ;
        {grade} {side} apical:a pleural:A thickening:O #PO ; apical:a pleural:A scarring:O #PO ;
        calcified:o pleural:A plaques:O #PO ; {trend} {side} pleural:A thickening:O #PO ;
        pleural:A scarring:O #PO at the {base} ; {side} fibrothorax:O #PO ;
        {grade} pleuroparenchymal:A scarring:O #PO in the {lung} ;
        {side} diaphragmatic:a pleural:A calcification:O #PO ; {side} mesothelioma:O #PO ; {side} pleural:A rind:O #PO
    """,
    "fracture": """
        fracture:O #FX of the {bone} ; {fxmod} fracture:O #FX of the {bone} ;
        {trend} {fxmod} fracture:O #FX of the {bone} ; {fxmod} {side} rib:A fractures:O #FX ;
        {grade} compression:o fracture:O #FX of {vert} ; {grade} compression:o deformity:O #FX of {vert} ;
        {fxmod} {side} {place} {ord} rib:A fracture:O #FX ; {fxmod} and {fxmod} fracture:O #FX of the {bone} ;
        {grade} {wedge} deformity:O #FX of the {vert} vertebral:a body:A
    """,
    "fxmod": """
        nondisplaced:o ; old:o ; healed:o ; displaced:o ; acute:o ; healing:o ; comminuted:o ;
        minimally:o displaced:o ; subacute:o ; remote:o ; pathologic:o ; multiple:o ; segmental:o ; oblique:o ;
        impacted:o ; angulated:o ; overriding:o ; ununited:o ; periprosthetic:o ; insufficiency:o ; greenstick:o ;
        avulsion:o ; buckle:o
    """,
    "wedge": "wedge:o ; biconcave:o ; anterior:o wedge:o ; burst:o ; superior:o endplate:o",
    "other": """
        low:o lung:A volumes:O ; hyperinflation:O of the lungs:A ; tortuous:O thoracic:a aorta:A ;
        {grade} {bib} scarring:O ; elevated:O {side} hemidiaphragm:A ; {size} hiatal:A hernia:O ;
        degenerative:o changes:O of the thoracic:a spine:A ; {grade} emphysema:O ;
        atherosclerotic:o calcifications:O of the aortic:a arch:A ; {side} hilar:A prominence:O ;
        {grade} chronic:o interstitial:o lung:A disease:O ; {grade} dextroscoliosis:O of the thoracic:a spine:A ;
        status:o post:o {surgery} ; {grade} bronchial:a wall:A thickening:O ;
        subcutaneous:o emphysema:O along the {side} chest:a wall:A ; {rare} ; {rare} , {trend} ; {grade} {rare} ;
        {rare} in the {lung} ; {foreign} projecting over the {lung} ; {variant} ;
        {grade} gaseous:o distension:O of the {bowel} ; {grade} {joint} ; {cm} {vessel}
    """,
    "surgery": """
        CABG:O ; median:o sternotomy:O ; {side} lobectomy:O ; {side} pneumonectomy:O ; {side} mastectomy:O ;
        esophagectomy:O ; thoracotomy:O ; thyroidectomy:O ; cholecystectomy:O ; decortication:O ; pleurodesis:O ;
        bullectomy:O ; segmentectomy:O ; thymectomy:O ; kyphoplasty:O ; vertebroplasty:O ; laminectomy:O ;
        splenectomy:O ; gastrectomy:O ; fundoplication:O ; sympathectomy:O ; bronchoscopy:O ; thoracentesis:O ;
        pericardiocentesis:O ; transplantation:O ; annuloplasty:O ; valvuloplasty:O ; mediastinoscopy:O ;
        laryngectomy:O ; Nissen:o repair:O ; pericardiectomy:O ; wedge:o resection:O ; TAVR:O ; MitraClip:O ;
        thoracoplasty:O ; esophagogastrectomy:O
    """,
    "rare": """
        bronchiectasis:O ; sarcoidosis:O ; pulmonary:A fibrosis:O ; pulmonary:A hypertension:O ; pneumomediastinum:O ;
        pneumoperitoneum:O ; lymphangitic:o carcinomatosis:O ; pericardial:A effusion:O ; asbestosis:O ; silicosis:O ;
        histoplasmosis:O ; tracheomalacia:O ; achalasia:O ; pulmonary:A infarct:O ; septic:o emboli:O ;
        lung:A abscess:O ; empyema:O ; bronchiolitis:O ; tuberculosis:O ; pneumopericardium:O ;
        pulmonary:A hemorrhage:O ; alveolar:o proteinosis:O ; honeycombing:O ; bullous:o disease:O ;
        lymphangioleiomyomatosis:O ; amyloidosis:O ; coccidioidomycosis:O ; blastomycosis:O ; aspergillosis:O ;
        mucormycosis:O ; hemosiderosis:O ; vasculitis:O ; pneumoconiosis:O ; berylliosis:O ; anthracosis:O ;
        pneumatosis:O ; diaphragmatic:A eventration:O ; Morgagni:o hernia:O ; Bochdalek:o hernia:O ;
        pectus:o excavatum:O ; pectus:o carinatum:O ; situs:o inversus:O ; dextrocardia:O ; coarctation:O ;
        osteopenia:O ; osteoporosis:O ; spondylosis:O ; kyphosis:O ; ankylosing:o spondylitis:O ; DISH:O ;
        osteonecrosis:O ; osteosclerosis:O ; chondrocalcinosis:O ; osteomyelitis:O ; discitis:O ; thyromegaly:O ;
        goiter:O ; hepatomegaly:O ; splenomegaly:O ; ileus:O ; Chilaiditi:o syndrome:O ; cholelithiasis:O ;
        nephrolithiasis:O ; esophageal:A dilatation:O ; varices:O ; mediastinitis:O ; granulomatosis:O ;
        polyangiitis:O ; eosinophilia:O ; mosaicism:O ; sequestration:O ; Swyer-James:o syndrome:O ;
        scimitar:o syndrome:O ; Kartagener:o syndrome:O ; Marfan:o syndrome:O ; scleroderma:O ; dermatomyositis:O ;
        Ewing:o sarcoma:O ; myeloma:O ; neurofibromatosis:O ; acromegaly:O ; thalassemia:O ;
        sickle:o cell:o lung:A disease:O ; hemangioma:O ; enchondroma:O ; osteochondroma:O ; lipoma:O ; fibroma:O ;
        mucous:o plugging:O ; bronchomalacia:O ; broncholithiasis:O ; bronchopleural:A fistula:O ;
        tracheoesophageal:A fistula:O ; chylous:o ascites:O ; Boerhaave:o syndrome:O ; Mounier-Kuhn:o syndrome:O ;
        Langerhans:o histiocytosis:O ; microlithiasis:O ; actinomycosis:O ; paracoccidioidomycosis:O ;
        toxoplasmosis:O ; schistosomiasis:O ; paragonimiasis:O ; dirofilariasis:O ; echinococcosis:O ; melioidosis:O ;
        tularemia:O ; anthrax:O ; psittacosis:O ; brucellosis:O ; talcosis:O ; siderosis:O ; stannosis:O ;
        baritosis:O ; byssinosis:O ; bagassosis:O ; alveolitis:O ; hypersensitivity:o pneumonitis:O ;
        radiation:o pneumonitis:O ; radiation:o fibrosis:O ; cystic:o fibrosis:O ; primary:o ciliary:o dyskinesia:O ;
        hypogammaglobulinemia:O ; arteriovenous:o malformation:O ; pseudoaneurysm:O ;
        aneurysm:O of the ascending:a aorta:A ; aortic:A dissection:O ; aortic:A ectasia:O ; intramural:o hematoma:O ;
        pulmonary:A embolism:O ; ventricular:A aneurysm:O ; mitral:a annular:A calcification:O ;
        pericardial:A calcification:O ; coronary:A calcification:O ; pericardial:A cyst:O ; bronchogenic:o cyst:O ;
        duplication:o cyst:O ; thymic:A hyperplasia:O ; Castleman:o disease:O ; extramedullary:o hematopoiesis:O ;
        meningocele:O ; splenosis:O ; endometriosis:O ; hibernoma:O ; elastofibroma:O ; chondrosarcoma:O ;
        osteosarcoma:O ; paraganglioma:O ; ganglioneuroma:O ; seminoma:O ; choriocarcinoma:O ; leiomyosarcoma:O ;
        angiosarcoma:O ; Kaposi:o sarcoma:O ; melanoma:o deposits:O ; rhabdomyosarcoma:O ; liposarcoma:O ; blastoma:O ;
        chloroma:O ; desmoid:O ; sialidosis:O ; mucopolysaccharidosis:O ; osteopetrosis:O ; melorheostosis:O ;
        achondroplasia:O ; hypophosphatasia:O ; hyperparathyroidism:O ; osteomalacia:O ; rickets:O ; ochronosis:O ;
        gout:O ; arthropathy:O
    """,
    "foreign": """
        surgical:o clips:O ; retained:o bullet:o fragment:O ; sternal:a wires:O ; skin:o fold:O ;
        metallic:o density:O ; embolization:o coils:O ; shrapnel:O ; fiducial:o markers:O ; skin:o staples:O ;
        nipple:o shadow:O ; breast:o implant:O ; safety:o pin:O ; kyphoplasty:o cement:O ;
        spinal:o fusion:o hardware:O ; acupuncture:o needle:O ; buckshot:O ; drainage:o sponge:O ;
        brachytherapy:o seeds:O ; hair:o braid:O ; necklace:O ; vascular:o stent:O
    """,
    "variant": """
        azygos:A fissure:O ; cervical:a rib:A ; bifid:o {ord} rib:A ; right-sided:o aortic:a arch:A ;
        aberrant:o subclavian:a artery:A ; prominent:o epicardial:A fat:O pad ; hypoplastic:o first:a rib:A ;
        butterfly:o vertebra:A at {vert} ; persistent:o left:a SVC:A ; pseudoarticulation:O of the {ord} rib:A ;
        accessory:o fissure:A
    """,
    "bowel": """
        stomach:A ; colon:A ; small:a bowel:A ; splenic:a flexure:A ; hepatic:a flexure:A ; transverse:a colon:A ;
        esophagus:A ; neoesophagus:A ; jejunum:A ; cecum:A ; duodenum:A
    """,
    "joint": """
        osteoarthritis:O of the {side} shoulder:A ; arthrosis:O of the {side} acromioclavicular:a joint:A ;
        spurring:O of the {vert} endplate:A ; osteophytes:O along the thoracic:a spine:A ;
        tendinosis:O of the {side} rotator:a cuff:A ; sclerosis:O of the {side} sternoclavicular:a joint:A ;
        disc:A narrowing:O at {vert} ; subluxation:O of the {side} glenohumeral:a joint:A ; ankylosis:O at {vert} ;
        erosion:O of the {side} coracoclavicular:a ligament:A ; retrolisthesis:O at {vert} ;
        anterolisthesis:O at {vert}
    """,
    "vessel": """
        thoracic:a aortic:A aneurysm:O ; main:a pulmonary:a artery:A ; ascending:a aorta:A ; azygos:a vein:A ;
        aortic:a knob:A ; paravertebral:a mass:O ; thyroid:A nodule:O ; vascular:a pedicle:A
    """,
    # ---- simple findings, for negation and doubt ---------------------------------------------------------------------
    "no_one": """
        pneumothorax:O #PT ; pneumonia:O #PN ; focal:o consolidation:O #CO ; pleural:A effusion:O #PE ;
        pulmonary:A edema:O #ED ; acute:o fracture:O #FX ; pulmonary:A nodule:O #LL ; overt:o pulmonary:A edema:O #ED ;
        lobar:o consolidation:O #CO ; residual:o pneumothorax:O #PT ; large:o pleural:A effusion:O #PE ;
        lung:A mass:O #LL ; displaced:o rib:A fracture:O #FX ; acute:o focal:o pneumonia:O #PN ;
        {side} apical:A pneumothorax:O #PT ; cardiomegaly:O #CM ; mediastinal:A widening:O #EC ;
        lobar:o collapse:O #AT ; pleural:A thickening:O #PO ; superimposed:o infection:O #PN ;
        {side} pneumothorax:O #PT ; new:o infiltrate:O #LO ; suspicious:o nodule:O #LL in the {lung} ;
        congestive:o heart:A failure:O #ED ; consolidation:O #CO in the {lung} ; {side} pleural:A effusion:O #PE
    """,
    "no_more": """
        pneumothorax:O #PT | or pleural:A effusion:O #PE ; pleural:A effusion:O #PE | or pneumothorax:O #PT ;
        focal:o consolidation:O #CO | , pleural:A effusion:O #PE | , or pneumothorax:O #PT ;
        focal:o consolidation:O #CO | or pleural:A effusion:O #PE ; pulmonary:A edema:O #ED | or pneumonia:O #PN ;
        pneumonia:O #PN | , pulmonary:A edema:O #ED | , or pneumothorax:O #PT ;
        vascular:A congestion:O #ED | , pleural:A effusion:O #PE | , or acute:o focal:o pneumonia:O #PN ;
        consolidation:O #CO | or edema:O #ED ; pneumothorax:O #PT | , effusion:O #PE | , or rib:A fracture:O #FX ;
        mass:O #LL | , nodule:O #LL | , or adenopathy:O
    """,
    "doubt": """
        pneumonia:O #PN ; infection:O #PN ; atelectasis:O #AT ; superimposed:o pneumonia:O #PN ;
        early:o pneumonia:O #PN ; aspiration:O #PN ; mild:o pulmonary:A edema:O #ED ;
        trace:o pleural:A effusion:O #PE ; small:o {side} pleural:A effusion:O #PE ; pneumonia:O #PN in the {lung} ;
        nodule:O #LL in the {lung} ; nondisplaced:o fracture:O #FX of the {bone} ;
        tiny:o {side} apical:A pneumothorax:O #PT ; underlying:o mass:O #LL ;
        early:o consolidation:O #CO in the {lung} ; {rare}
    """,
    "cause": """
        atelectasis:O #AT ; pneumonia:O #PN ; aspiration:O #PN ; infection:O #PN ; edema:O #ED ; scarring:O ;
        atelectasis:O #AT | or pneumonia:O #PN ; aspiration:O #PN | or atelectasis:O #AT ; a small:o effusion:O #PE ;
        consolidation:O #CO ; hemorrhage:O ; malignancy:O #LL ; crowding:O of bronchovascular:a structures:A ;
        {germ} infection:O #PN ; {rare} ; contusion:O ; layering:o effusion:O #PE ; overlapping:o structures:O ;
        metastatic:o disease:O #LL
    """,
    "maybe": """
        may represent ; likely represents ; , possibly ; , likely ; which may represent ; concerning for ;
        could represent ; worrisome for ; , probably ; suspicious for ; , which could reflect ;
        , potentially reflecting ; , presumably ; , query ; likely reflecting a combination of
    """,
    "surely": """
        compatible with ; consistent with ; reflecting ; , in keeping with ; representing ; , due to ; diagnostic of
    """,
    # ---- devices -----------------------------------------------------------------------------------------------------
    "line": """
        {side} PICC:O ; {side} internal:a jugular:a central:o venous:o catheter:O ; {side} subclavian:a catheter:O ;
        {side} Port-A-Cath:O ; {side} IJ:a catheter:O ; {side} chest:a wall:a port:O ; {side} PICC:o line:O ;
        {side} dialysis:o catheter:O ; Swan-Ganz:o catheter:O ; {side} central:o line:O ;
        {side} subclavian:a PICC:o line:O ; {side} hemodialysis:o catheter:O ; {brand} catheter:O ;
        umbilical:o venous:o catheter:O ; {side} femoral:a catheter:O
    """,
    "brand": """
        Hickman:o ; Broviac:o ; Groshong:o ; Permacath:o ; Tesio:o ; Quinton:o ; MediPort:o ; Mahurkar:o ; PowerPort:o
    """,
    "linetip": """
        mid:a SVC:A ; lower:a SVC:A ; cavoatrial:a junction:A ; upper:a SVC:A ; right:a atrium:A ; low:a SVC:A ;
        superior:a vena:a cava:A ; proximal:a right:a atrium:A ; {side} brachiocephalic:a vein:A ; distal:a SVC:A ;
        azygos:a vein:A ; {side} subclavian:a vein:A ; {side} axillary:a vein:A ; main:a pulmonary:a artery:A ;
        {side} pulmonary:a artery:A ; right:a ventricle:A ; internal:a jugular:a vein:A ; innominate:a vein:A ;
        inferior:a vena:a cava:A
    """,
    "tube": """
        endotracheal:o tube:O ; ET:o tube:O ; tracheostomy:o tube:O ; ETT:O ; endotracheal:o tube:o tip:O
    """,
    "feeding": """
        enteric:o tube:O ; nasogastric:o tube:O ; orogastric:o tube:O ; NG:o tube:O ; feeding:o tube:O ;
        Dobbhoff:o tube:O ; OG:o tube:O ; gastrostomy:o tube:O ; nasojejunal:o tube:O ; Sengstaken-Blakemore:o tube:O ;
        temperature:o probe:O ; G-tube:O ; J-tube:O
    """,
    "feedtip": """
        stomach:A ; gastric:a body:A ; gastric:a fundus:A ; proximal:a stomach:A ; distal:a esophagus:A ;
        gastroesophageal:a junction:A ; duodenum:A ; {side} mainstem:a bronchus:A ; pylorus:A ; jejunum:A ; hiatus:A ;
        gastric:a antrum:A ; ligament:a of Treitz:A ; mid:a esophagus:A
    """,
    "drain": """
        {side} chest:A tube:O ; {side} pigtail:o catheter:O ; {side} basal:A chest:a tube:O ;
        two {side} chest:A tubes:O ; mediastinal:A drain:O ; {side} pleural:A drain:O ; {side} apical:A drain:O ;
        {side} PleurX:o catheter:O ; large-bore:o {side} drain:O ; Blake:o drain:O ; pericardial:A drain:O ;
        Jackson-Pratt:o drain:O
    """,
    "pacer": """
        {side} pectoral:A pacemaker:O ; dual-chamber:o pacemaker:O ; {side} AICD:O ; biventricular:o pacer:O ;
        single-lead:o ICD:O ; {side} chest:a wall:A pacemaker:O ; triple-lead:o pacemaker:O
    """,
    "implant": """
        aortic:A valve:o prosthesis:O ; loop:o recorder:O ; intra-aortic:o balloon:o pump:O ; leadless:o pacemaker:O ;
        vagal:o nerve:o stimulator:O ; LVAD:O ; Impella:o device:O ; ECMO:o cannula:O ; ventriculoperitoneal:o shunt:O ;
        mitral:A prosthesis:O ; spinal:o stimulator:O ; Amplatzer:o occluder:O ; esophageal:A stent:O ;
        tracheal:A stent:O ; Watchman:o device:O ; endobronchial:A valves:O ; {pacer}
    """,
    # ---- sentences ---------------------------------------------------------------------------------------------------
    **SENTENCES,
}

# Tables whose alternatives are equally likely and too regular to write out. Times stop at 12:59 and lengths at 12.9 cm.
NUMBER_TABLES = {
    "num": [str(n) for n in range(2, 13)],
    "cm": [f"{whole}.{part}+cm:o" for whole in range(1, 13) for part in range(10)],
    "mm": [f"{n}+mm:o" for n in [*range(3, 30), *range(3, 16), *range(4, 10)]],
    "dist": [f"{whole}.{part}+cm:o" for whole in range(1, 8) for part in range(10)]
    + [f"{n}+cm:o" for n in range(2, 8)] * 10,
    "time": [f"{h}:{m:02d} {half}" for h in range(1, 13) for m in range(60) for half in ("a.m.", "p.m.")],
}
